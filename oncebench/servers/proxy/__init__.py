"""A TCP proxy on loopback that can delay a request, drop a response, or cut the connection.

    pipeline ---> [ proxy ] ---> Kafka broker or PostgreSQL
                                      ^
    load generator, observer, audit --+   (they always connect directly)

- It forwards every byte unchanged until a fault asks for something else.
- It finds message boundaries in Kafka's and PostgreSQL's protocols, so it can act on a single request.
- `Catch(wanted)`: forwards one request, drops its response, and closes the client's connection.
- `Catch(wanted, held_s=8.0)`: closes the client's connection at once and forwards the request 8 s later.
- `Catch(wanted, withheld=True)`: closes the client's connection and never forwards the request or its repeats.
- `cut` closes all connections and refuses new ones; `mend` accepts connections again.
- It records the request and the server's response, so the run knows whether the server did the work.
- Proxies such as Toxiproxy delay or drop bytes. They cannot pick the response to one EndTxn.
- It cannot read encrypted connections, so it stands only in front of servers that the suite started.
- It runs in a thread of the suite, so it ends with the suite.
"""

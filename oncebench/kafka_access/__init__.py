"""How clients reach a Kafka: its addresses, and the security of the connections.

The package serves all three kinds of client.
"""

"""How clients reach a Kafka: its addresses, and the security of the connections. For all three kinds of client."""

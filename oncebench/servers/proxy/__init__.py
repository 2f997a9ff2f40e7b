"""A TCP proxy that can delay a request, drop a response, or cut the connection."""

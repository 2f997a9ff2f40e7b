"""The answer on the page's first screen: a table and a chart by sink, and the sentences above them."""

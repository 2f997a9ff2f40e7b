"""The answer on the page's first screen: sentences, then a table and a chart by sink."""

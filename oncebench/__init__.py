"""oncebench: what does a delivery guarantee cost, and what does it buy?"""

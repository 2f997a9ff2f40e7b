"""What a run needs besides itself: Java, jars, and the processes it starts, watches and always reaps."""

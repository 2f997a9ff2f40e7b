"""What a start of the PostgreSQL sink checks and makes."""

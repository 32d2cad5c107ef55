"""The engines that count records where they are: DuckDB, SQLite, PostgreSQL and Spark."""

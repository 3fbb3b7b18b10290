"""Any log, planned and read without Spark: from a broker, files or an object store."""

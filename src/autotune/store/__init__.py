"""Storage: records, runs, rejections and failures."""

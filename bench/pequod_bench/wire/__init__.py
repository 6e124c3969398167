"""What calls take of server and client: by each way of serving and of calling, and of other systems beside."""

"""Heat: which keys a server's processor time goes to, by samples."""

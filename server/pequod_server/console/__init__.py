"""The console: a page for browsers that shows what a server holds and does."""

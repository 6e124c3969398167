"""What Pequod is installed as, and how its command starts.

It lies outside the package `pequod`: another project's distribution of that name replaces files there, or stands before
all of it, and the command says so.
"""

"""HTTP for browsers and scripts: the calls of the service as JSON, and watches as Server-Sent Events."""

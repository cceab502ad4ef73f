"""grpcio in the interop tests: `version`, `client` or `server PROTO` (interop/README.md)."""

import json
import os
import platform
import sys

# C-core logs every refused config, and some scenarios expect a refusal.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

import client
import server


def version():
    runtime = f"Python {platform.python_version()}"
    print(json.dumps({"library": "grpcio", "version": grpc.__version__, "runtime": runtime}))


def main(arguments):
    match arguments:
        case ["version"]:
            version()
        case ["client"]:
            client.main()
        case ["server", proto]:
            server.main(proto)
        case _:
            sys.exit("expected `version`, `client` or `server PROTO`")


if __name__ == "__main__":
    main(sys.argv[1:])

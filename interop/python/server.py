"""Serves redial.test.Echo (echo.proto) with grpcio."""

import json
import os
import sys
import time
from concurrent import futures

import grpc

PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"
PUSHBACK = "grpc-retry-pushback-ms"
AT_ONCE, FIRST_ITEM, AT_END = 0, 1, 2
# Each running handler occupies a thread.
CALLS_MAX = 64


def main(proto):
    sys.path.insert(0, os.path.dirname(os.path.abspath(proto)))
    messages, services = grpc.protos_and_services(os.path.basename(proto))
    server = grpc.server(futures.ThreadPoolExecutor(CALLS_MAX))
    services.add_EchoServicer_to_server(Echo(messages.EchoResponse), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(json.dumps({"port": port}), flush=True)
    sys.stdin.read()
    server.stop(grace=None)
    # Do not wait for delayed handlers.
    os._exit(0)


class Echo:
    def __init__(self, response):
        self.response = response

    def Unary(self, request, context):
        pause(request)
        fail(request, context)
        return self.answer(request.payload, context, 1)

    def ClientStream(self, requests, context):
        received, payload = 0, b""
        for request in requests:
            received += 1
            if received == 1:
                pause(request)
                fail(request, context)
            payload += request.payload
        return self.answer(payload, context, received)

    def ServerStream(self, request, context):
        return self.stream(iter([request]), context)

    def Bidi(self, requests, context):
        return self.stream(requests, context)

    def stream(self, requests, context):
        first = next(requests, None)
        if first is None:
            return
        fails = failure(first, context) is not None
        if fails and first.failing == FIRST_ITEM:
            context.send_initial_metadata(())
        if fails and first.failing != AT_END:
            pause(first)
            fail(first, context)
        received, request = 0, first
        while request is not None:
            received += 1
            for _ in range(request.responses if request.HasField("responses") else 1):
                pause(first)
                yield self.answer(request.payload, context, received)
            request = next(requests, None)
        fail(first, context)

    def answer(self, payload, context, received):
        previous = previous_attempts(context)
        return self.response(payload=payload, previous_attempts=previous, received=received)


def previous_attempts(context):
    return int(dict(context.invocation_metadata()).get(PREVIOUS_ATTEMPTS, "0"))


def pause(request):
    time.sleep(request.delay_ms / 1000)


def failure(request, context):
    """The status code of this attempt's failure, if any."""
    if previous_attempts(context) >= request.failures:
        return None
    codes = {code.value[0]: code for code in grpc.StatusCode}
    return codes[request.code if 1 <= request.code <= 16 else grpc.StatusCode.UNAVAILABLE.value[0]]


def fail(request, context):
    """Ends the call, if this attempt fails."""
    code = failure(request, context)
    if code is None:
        return
    if request.HasField("pushback_ms"):
        context.set_trailing_metadata(((PUSHBACK, str(request.pushback_ms)),))
    context.abort(code, f"asked to fail, after {previous_attempts(context)} attempts")

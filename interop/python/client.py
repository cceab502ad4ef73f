"""Runs scenarios with a channel of grpcio.

It makes no decisions: requests are passed to the library, and its results are printed.
"""

import json
import sys
import threading
import time

import grpc

CONNECT_SECONDS = 5
OPTIONS = {
    "per_rpc_buffer_limit_in_bytes": "grpc.per_rpc_retry_buffer_size",
    # C-core has no retry buffer limit per channel and a fixed cap on attempts.
}

_printing = threading.Lock()


def main():
    plays = [begin(play, json.loads(line)) for line in sys.stdin]
    for thread in plays:
        thread.join()


def begin(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def print_line(result):
    with _printing:
        print(json.dumps(result), flush=True)


def play(scenario):
    with grpc.insecure_channel(scenario["target"], options=options(scenario)) as channel:
        try:
            grpc.channel_ready_future(channel).result(CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            pass
        clock = Clock()
        calls = [Call(channel, clock, call, scenario["give_up"]) for call in scenario["calls"]]
        threads = [begin(call.make) for call in calls]
        for thread in threads:
            thread.join()
        print_line({"id": scenario["id"], "calls": [call.result for call in calls]})


def options(scenario):
    given = scenario["options"]
    yield "grpc.service_config", scenario["config"]
    yield "grpc.service_config_disable_resolution", 1
    # Channels with equal options to one address would share connections and tokens.
    yield "grpc.use_local_subchannel_pool", 1
    if "retries" in given:
        yield "grpc.enable_retries", int(given["retries"])
    for word, name in OPTIONS.items():
        if word in given:
            yield name, given[word]


class Clock:
    """Milliseconds since the scenario's start."""

    def __init__(self):
        self.start = time.monotonic()

    def now(self):
        return (time.monotonic() - self.start) * 1000

    def wait_until(self, moment):
        time.sleep(max(0, moment - self.now()) / 1000)


class Call:
    def __init__(self, channel, clock, spec, give_up):
        self.channel = channel
        self.clock = clock
        self.spec = spec
        self.give_up = give_up
        self.ended = threading.Event()
        self.ended_at = None
        self.result = None

    def make(self):
        self.clock.wait_until(self.spec["at"])
        began = self.clock.now()
        call = self.start(began)
        call.add_done_callback(lambda _: self.end())
        if "cancel" in self.spec:
            begin(self.cancel, call, began + self.spec["cancel"])
        if self.ended.wait(max(0, self.give_up - began) / 1000):
            self.result = {"began": began, "ended": self.ended_at, **status(call)}
        else:
            call.cancel()
            self.result = {"began": began, "ended": None, "outcome": None, "text": ""}

    def start(self, began):
        deadline = self.spec.get("deadline")
        metadata = tuple(self.spec["metadata"].items())
        how = {"metadata": metadata, "timeout": None if deadline is None else deadline / 1000}
        messages = self.spec["messages"]
        if self.spec["kind"] == "unary":
            return self.channel.unary_unary(self.spec["method"]).future(bytes(messages[0]["bytes"]), **how)
        return self.channel.stream_unary(self.spec["method"]).future(self.write(messages, began), **how)

    def write(self, messages, began):
        for message in messages:
            self.clock.wait_until(began + message["at"])
            yield bytes(message["bytes"])

    def cancel(self, call, moment):
        self.clock.wait_until(moment)
        call.cancel()

    def end(self):
        self.ended_at = self.clock.now()
        self.ended.set()


def status(call):
    initial, trailing = dict(call.initial_metadata() or ()), dict(call.trailing_metadata() or ())
    previous, attempt = "grpc-previous-rpc-attempts", "x-redial-attempt"
    return {
        "outcome": call.code().name,
        "text": call.details() or "",
        "answered_by": trailing.get(attempt, initial.get(attempt)),
        "previous": initial.get(previous, trailing.get(previous)),
    }

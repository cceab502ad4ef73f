'use strict';
// Runs scenarios with a channel of @grpc/grpc-js.
//
// It makes no decisions: requests are passed to the library, and its results are printed.

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');

const CONNECT_MS = 5000;
const OPTIONS = {
  attempts_cap: 'grpc-node.retry_max_attempts_limit',
  per_rpc_buffer_limit_in_bytes: 'grpc.per_rpc_retry_buffer_size',
  retry_buffer_size_in_bytes: 'grpc.retry_buffer_size',
};
const PREVIOUS = 'grpc-previous-rpc-attempts';
const ATTEMPT = 'x-redial-attempt';

function main() {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    const scenario = JSON.parse(line);
    console.log(JSON.stringify({ id: scenario.id, ...(await play(scenario)) }));
  });
}

async function play(scenario) {
  let client;
  try {
    client = new grpc.Client(scenario.target, grpc.credentials.createInsecure(), options(scenario));
  } catch (error) {
    return { refused: error.message };
  }
  await new Promise((connected) => client.waitForReady(Date.now() + CONNECT_MS, connected));
  const clock = new Clock();
  const calls = scenario.calls.map((call) => make(client, clock, call, scenario.give_up));
  const results = await Promise.all(calls);
  client.close();
  return { calls: results };
}

function options({ config, options }) {
  const channelOptions = { 'grpc.service_config': config, 'grpc.service_config_disable_resolution': 1 };
  // Channels with equal options to one address would share connections.
  channelOptions['grpc.use_local_subchannel_pool'] = 1;
  if ('retries' in options) channelOptions['grpc.enable_retries'] = Number(options.retries);
  for (const [word, name] of Object.entries(OPTIONS)) {
    if (word in options) channelOptions[name] = options[word];
  }
  return channelOptions;
}

/** Milliseconds since the scenario's start. */
class Clock {
  #start = performance.now();

  now() {
    return performance.now() - this.#start;
  }

  at(moment, what) {
    return setTimeout(what, Math.max(0, moment - this.now()));
  }

  until(moment) {
    return new Promise((then) => this.at(moment, then));
  }
}

async function make(client, clock, spec, give_up) {
  await clock.until(spec.at);
  const began = clock.now();
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries(spec.metadata)) metadata.set(name, value);
  const how = 'deadline' in spec ? { deadline: Date.now() + spec.deadline } : {};
  const bytes = [(buffer) => buffer, (buffer) => buffer];
  const first = () => Buffer.alloc(spec.messages[0].bytes);
  return new Promise((end) => {
    let initial = new grpc.Metadata();
    const ignored = () => {};
    const call =
      spec.kind === 'unary'
        ? client.makeUnaryRequest(spec.method, ...bytes, first(), metadata, how, ignored)
        : client.makeClientStreamRequest(spec.method, ...bytes, metadata, how, ignored);
    const timers = [];
    const result = (ended, rest) => {
      timers.forEach(clearTimeout);
      end({ began, ended, ...rest });
    };
    call.on('metadata', (received) => { initial = received; });
    call.on('status', ({ code, details, metadata: trailing }) => {
      const one = (name, ...sources) => sources.flatMap((source) => source.get(name))[0] ?? null;
      result(clock.now(), {
        outcome: grpc.status[code],
        text: details,
        answered_by: one(ATTEMPT, trailing, initial),
        previous: one(PREVIOUS, initial, trailing),
      });
    });
    call.on('error', ignored);
    const at = (moment, what) => timers.push(clock.at(moment, what));
    if ('cancel' in spec) at(began + spec.cancel, () => call.cancel());
    at(give_up, () => {
      result(null, { outcome: null, text: '' });
      call.cancel();
    });
    if (spec.kind !== 'unary') {
      spec.messages.forEach(({ at: moment, bytes: size }, index) =>
        at(began + moment, () => {
          call.write(Buffer.alloc(size));
          if (index === spec.messages.length - 1) call.end();
        }));
    }
  });
}

module.exports = { main };

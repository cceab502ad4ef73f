'use strict';
// Serves redial.test.Echo (echo.proto) with @grpc/grpc-js.

const { setTimeout: pause } = require('node:timers/promises');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PREVIOUS_ATTEMPTS = 'grpc-previous-rpc-attempts';
const PUSHBACK = 'grpc-retry-pushback-ms';
const AT_END = 'FAILING_AT_END';
const FIRST_ITEM = 'FAILING_FIRST_ITEM';

function main(proto) {
  const loaded = loader.loadSync(proto, { enums: String, keepCase: true });
  const { Echo } = grpc.loadPackageDefinition(loaded).redial.test;
  const server = new grpc.Server();
  server.addService(Echo.service, {
    Unary: (call, callback) => settle(unary(call), callback),
    ClientStream: (call, callback) => settle(clientStream(call), callback),
    ServerStream: (call) => stream(call, [call.request]),
    Bidi: (call) => stream(call, messages(call)),
  });
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    console.log(JSON.stringify({ port }));
  });
  process.stdin.on('end', () => process.exit(0)).resume();
}

/** The messages that the client sends. A handler that stops to read them can still answer the call. */
function messages(call) {
  return call.iterator({ destroyOnReturn: false });
}

function settle(promise, callback) {
  promise.then((answer) => callback(null, answer), (error) => callback(error));
}

async function unary(call) {
  await pause(delay(call.request));
  fail(call.request, call);
  return answer(call.request.payload, call, 1);
}

async function clientStream(call) {
  const payloads = [];
  for await (const request of messages(call)) {
    if (payloads.push(request.payload ?? Buffer.alloc(0)) === 1) {
      await pause(delay(request));
      fail(request, call);
    }
  }
  return answer(Buffer.concat(payloads), call, payloads.length);
}

async function stream(call, requests) {
  // A cancelled call cannot receive an error.
  try {
    await answerEach(call, requests);
    call.end();
  } catch (error) {
    call.emit('error', error);
  }
}

async function answerEach(call, requests) {
  let received = 0;
  let first;
  for await (const request of requests) {
    received += 1;
    first ??= request;
    if (received === 1 && failure(first, call)) {
      if (first.failing === FIRST_ITEM) call.sendMetadata(new grpc.Metadata());
      if (first.failing !== AT_END) {
        await pause(delay(first));
        fail(first, call);
      }
    }
    for (let left = request.responses ?? 1; left > 0; left -= 1) {
      await pause(delay(first));
      call.write(answer(request.payload, call, received));
    }
  }
  if (first) fail(first, call);
}

function answer(payload, call, received) {
  return { payload, previous_attempts: previousAttempts(call), received };
}

function previousAttempts(call) {
  return Number(call.metadata.get(PREVIOUS_ATTEMPTS)[0] ?? 0);
}

function delay(request) {
  return request.delay_ms ?? 0;
}

/** The error with which this attempt fails, if it does. */
function failure({ failures = 0, code = 0, pushback_ms }, call) {
  const previous = previousAttempts(call);
  if (previous >= failures) return undefined;
  const metadata = new grpc.Metadata();
  if (pushback_ms !== undefined) metadata.set(PUSHBACK, String(pushback_ms));
  const known = code >= 1 && code <= 16;
  return {
    code: known ? code : grpc.status.UNAVAILABLE,
    details: `asked to fail, after ${previous} attempts`,
    metadata,
  };
}

/** Throws that error, if this attempt fails. */
function fail(request, call) {
  const error = failure(request, call);
  if (error) throw error;
}

module.exports = { main };

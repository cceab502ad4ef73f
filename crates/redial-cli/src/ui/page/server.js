// Requests to the server of this page.

/** The server refused a request, or it has ended. */
export class ServerError extends Error {}

async function request(path, body, signal) {
  const options = body === undefined
    ? { signal }
    : { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The server does not answer. Start `redial ui` again and open its new address.');
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new ServerError(answer.error ?? `The server answered ${response.status}.`);
  }
  return response;
}

/** The answer to a request; without a body it is a GET. */
export async function ask(path, body, signal) {
  return (await request(path, body, signal)).json();
}

/** The lines of an answer, one JSON object each, as they arrive. */
export async function* lines(path, body, signal) {
  const response = await request(path, body, signal);
  if (response.headers.get('content-type') === 'application/json') {
    yield await response.json();
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === 'AbortError') throw error;
      throw new ServerError('The server ended during the run.');
    });
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

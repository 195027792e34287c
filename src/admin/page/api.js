// @ts-check
/**
 * Talks to noria: reads, verbs and the stream of events. Keeps the token in sessionStorage, so that it ends with the tab.
 */

/** noria answered that it will not. `status` 401 asks for the token. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const TOKEN_KEY = 'noria-token';
/** Without a sign of life for so long the stream counts as lost; noria gives one every 5 s. */
const SILENCE_MS = 12_000;
const READ_TIMEOUT_MS = 8_000;

/** @returns {boolean} */
export function hasToken() {
  return sessionStorage.getItem(TOKEN_KEY) !== null;
}

/** @param {string | undefined} token */
export function setToken(token) {
  if (token === undefined) sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, token);
}

/** @returns {Record<string, string>} */
function credentials() {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/**
 * Reads JSON. `skewMs` is how far noria's clock is ahead of this machine's, by its Date header.
 *
 * @param {string} path
 * @returns {Promise<{ value: any, skewMs: number }>}
 */
export async function read(path) {
  const response = await fetch(path, {
    headers: credentials(),
    cache: 'no-store',
    signal: AbortSignal.timeout(READ_TIMEOUT_MS),
  });
  await mustBeFine(response);
  const saidAt = Date.parse(response.headers.get('date') ?? '');
  return { value: await response.json(), skewMs: Number.isNaN(saidAt) ? 0 : saidAt - Date.now() };
}

/**
 * Does something: a verb of the API.
 *
 * @param {'POST' | 'DELETE'} method
 * @param {string} path
 * @param {object} [body]
 */
export async function act(method, path, body = {}) {
  const response = await fetch(path, {
    method,
    headers: { ...credentials(), 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(READ_TIMEOUT_MS),
  });
  await mustBeFine(response);
}

/** @param {Response} response */
async function mustBeFine(response) {
  if (response.ok) return;
  const said = await response.json().catch(() => undefined); // ignored: whatever it is, the status says enough
  throw new Refused(response.status, said?.error?.message ?? `noria answered ${response.status}`);
}

/**
 * Follows the events until the stream ends or falls silent. EventSource cannot send the token, so the stream is read here.
 *
 * @param {readonly string[]} names
 * @param {(name: string, data: any) => void} onEvent - also told of `hello`, when noria has answered
 */
export async function follow(names, onEvent) {
  const ending = new AbortController();
  let alarm = setTimeout(() => ending.abort(), SILENCE_MS);
  try {
    const response = await fetch(`/api/events?only=${names.join(',')}`, {
      headers: credentials(),
      cache: 'no-store',
      signal: ending.signal,
    });
    await mustBeFine(response);
    if (response.body === null) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      clearTimeout(alarm);
      alarm = setTimeout(() => ending.abort(), SILENCE_MS);
      const messages = (rest + part.value).split('\n\n');
      rest = messages.pop() ?? '';
      for (const message of messages) tell(message, onEvent);
    }
  } finally {
    clearTimeout(alarm);
    ending.abort();
  }
}

/**
 * @param {string} message
 * @param {(name: string, data: any) => void} onEvent
 */
function tell(message, onEvent) {
  const field = (/** @type {string} */ name) =>
    message
      .split('\n')
      .filter((line) => line.startsWith(`${name}: `))
      .map((line) => line.slice(name.length + 2))
      .join('\n');
  const name = field('event');
  if (name !== '') onEvent(name, JSON.parse(field('data')));
}

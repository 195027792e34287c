// @ts-check
/**
 * The client of the admin API. It keeps the token in sessionStorage, so the browser forgets the token when the tab is
 * closed.
 */
import { LANGUAGE } from './language.js';
import { TEXTS } from './texts.js';

/** noria answered with an error status. Status 401 means that the token is missing or wrong. */
export class ApiError extends Error {
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
/** After this time without data, the stream counts as lost. noria sends a heartbeat every 5 s. */
const SILENCE_MS = 12_000;
const REQUEST_TIMEOUT_MS = 8_000;

/** @returns {boolean} */
export function hasToken() {
  return sessionStorage.getItem(TOKEN_KEY) !== null;
}

/** @param {string | undefined} token */
export function setToken(token) {
  if (token === undefined) sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, token);
}

/**
 * Sends a GET request and decodes the JSON answer. `skewMs` is how far noria's clock is ahead of the browser's clock,
 * according to the Date header.
 * @param {string} path
 * @returns {Promise<{ value: any, skewMs: number }>}
 */
export async function read(path) {
  const response = await fetch(path, {
    headers: { ...credentials(), 'accept-language': LANGUAGE },
    cache: 'no-store',
    signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
  });
  await assertOk(response);
  const sentAt = Date.parse(response.headers.get('date') ?? '');
  return { value: await response.json(), skewMs: Number.isNaN(sentAt) ? 0 : sentAt - Date.now() };
}

/**
 * Sends a request that changes state.
 *
 * @param {'POST' | 'DELETE'} method
 * @param {string} path
 * @param {object} [body]
 */
export async function send(method, path, body = {}) {
  const response = await fetch(path, {
    method,
    headers: { ...credentials(), 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
  });
  await assertOk(response);
}

/**
 * Reads the event stream until it ends or no data arrives for `SILENCE_MS`. Uses fetch, because an EventSource cannot
 * send the token.
 * @param {readonly string[]} names - the names of the wanted events
 * @param {(name: string, data: any) => void} onEvent - also called for `hello`, the first event of each stream
 */
export async function follow(names, onEvent) {
  const ending = new AbortController();
  let silenceTimer = setTimeout(() => ending.abort(), SILENCE_MS);
  try {
    const response = await fetch(`/api/events?only=${names.join(',')}`, {
      headers: credentials(),
      cache: 'no-store',
      signal: ending.signal,
    });
    await assertOk(response);
    if (response.body === null) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      clearTimeout(silenceTimer);
      silenceTimer = setTimeout(() => ending.abort(), SILENCE_MS);
      const messages = (rest + part.value).split('\n\n');
      rest = messages.pop() ?? '';
      for (const message of messages) dispatch(message, onEvent);
    }
  } finally {
    clearTimeout(silenceTimer);
    ending.abort();
  }
}

/** @returns {Record<string, string>} */
function credentials() {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/** @param {Response} response */
async function assertOk(response) {
  if (response.ok) return;
  // ignored: without a JSON body, the message is the HTTP status
  const body = await response.json().catch(() => undefined);
  throw new ApiError(response.status, body?.error?.message ?? TEXTS.answered(response.status));
}

/**
 * @param {string} message
 * @param {(name: string, data: any) => void} onEvent
 */
function dispatch(message, onEvent) {
  const field = (/** @type {string} */ name) =>
    message
      .split('\n')
      .filter((line) => line.startsWith(`${name}: `))
      .map((line) => line.slice(name.length + 2))
      .join('\n');
  const name = field('event');
  if (name !== '') onEvent(name, JSON.parse(field('data')));
}

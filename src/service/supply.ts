/**
 * How sources get their members: by a call to a service, by making names for a gateway, or by reading a list. A source
 * does not know which: each is a connection that is opened, asked once, and closed.
 */
import type { Clock } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import { bodyText, type DrawAnswer, quoteText } from './answer.ts';
import type { ServiceClient, ServiceConnection } from './client.ts';
import type { RefuseAddress } from './decode.ts';
import { makeMembers } from './gateway.ts';
import { linkSecrets } from './link/link-url.ts';
import { decodeList, listBody, readListFile } from './list.ts';
import type { CountlessCall, DrawCall, ListCall, ServiceCall } from './request.ts';
import type { WriteGate } from './transport.ts';

interface SupplyOptions {
  readonly client: ServiceClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly refuses: RefuseAddress;
}

/** A connection for one GET of a URL that gets no members. */
export interface UrlConnection {
  /** @returns the status, and the text of the answer on one line, cut, without secrets of the URL. */
  get(url: Secret, gate?: WriteGate): Promise<{ readonly status: number; readonly text: string }>;
  close(): void;
}

export interface SupplyConnection {
  extract(
    call: DrawCall,
    options: { readonly secrets: readonly Secret[]; readonly gate: WriteGate },
  ): Promise<DrawAnswer>;
  close(): void;
}

const MAX_TEXT = 200;
const NOTHING_TO_CLOSE = { close: () => {} };

export class Supply {
  readonly #options: SupplyOptions;
  /** The last answer of each list's URL, with its ETag: the server sends an unchanged list only once. */
  readonly #lists = new Map<string, { readonly etag: string; readonly answer: DrawAnswer }>();

  constructor(options: SupplyOptions) {
    this.#options = options;
  }

  async connect(call: CountlessCall, signal: AbortSignal): Promise<SupplyConnection> {
    const { client } = this.#options;
    if (call.product === 'gateway') return { ...NOTHING_TO_CLOSE, extract: (made) => this.#make(made) };
    if (call.product === 'list' && call.url === undefined)
      return { ...NOTHING_TO_CLOSE, extract: () => this.#readFile(call) };
    const connection = await client.connect(call, signal);
    if (call.product === 'list')
      return {
        extract: (_, options) => this.#readUrl(call, connection, options.gate),
        close: () => connection.close(),
      };
    return connectionOf(connection);
  }

  /** @param url - the URL, whose placeholders `get` may have replaced. */
  async open(url: Secret, signal: AbortSignal): Promise<UrlConnection> {
    const secrets = linkSecrets(url, { headers: {}, body: undefined });
    const connection = await this.#options.client.connect({ baseUrl: new URL(url.reveal()).origin }, signal);
    return {
      get: async (asked, gate) => {
        const { status, body } = await connection.fetch({ url: asked }, undefined, gate);
        return { status, text: quoteText(bodyText(body), MAX_TEXT, secrets) };
      },
      close: () => connection.close(),
    };
  }

  async #make(call: DrawCall): Promise<DrawAnswer> {
    const { clock } = this.#options;
    if (call.product !== 'gateway') throw new TypeError(`${call.product} is not a gateway`);
    return makeMembers(call, call.count ?? 1, { ...this.#options, sentAt: clock.monotonic() });
  }

  async #readFile(call: ListCall): Promise<DrawAnswer> {
    const sentAt = this.#options.clock.monotonic();
    return { ...this.#decode(await readListFile(call.file ?? ''), call), sentAt };
  }

  async #readUrl(call: ListCall, connection: ServiceConnection, gate: WriteGate): Promise<DrawAnswer> {
    const known = this.#lists.get(call.instance);
    const reply = await connection.fetch(call, known?.etag, gate);
    const body = listBody(reply, call);
    if (body === undefined && known !== undefined) return { ...known.answer, sentAt: reply.sentAt };
    const answer = { ...this.#decode(body ?? new Uint8Array(), call), sentAt: reply.sentAt };
    if (reply.etag === undefined) this.#lists.delete(call.instance);
    else this.#lists.set(call.instance, { etag: reply.etag, answer });
    return answer;
  }

  #decode(body: Uint8Array, call: ListCall): Omit<DrawAnswer, 'sentAt'> {
    const { clock, refuses } = this.#options;
    return decodeList(body, call, { refuses, wallAt: clock.now() });
  }
}

function connectionOf(connection: ServiceConnection): SupplyConnection {
  return {
    extract: (call, options) => connection.extract(serviceCall(call), options),
    close: () => connection.close(),
  };
}

function serviceCall(call: DrawCall): ServiceCall {
  if (call.product === 'gateway' || call.product === 'list')
    throw new TypeError(`${call.product} is not a call to a service`);
  return call;
}

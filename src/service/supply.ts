/**
 * How sources get their members: by a call to a service, by making names for a gateway, or by reading a list. A source
 * does not know which: each is a connection that is opened, asked once, and closed.
 */
import type { Clock } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import { bodyText, type DrawAnswer, quoteText } from './answer.ts';
import type { ServiceClient, ServiceConnection } from './client.ts';
import type { DecodedDraw, RefuseAddress } from './decode.ts';
import { makeMembers } from './gateway.ts';
import { linkSecrets } from './link/link-url.ts';
import { decodeList, listBody, readListFile } from './list.ts';
import type { CountlessCall, DrawCall, ListCall } from './request.ts';
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
  /**
   * Gets members once. Resolves with the answer, also if its code is an error.
   *
   * @throws the error of `gate.beforeWrite`, or a NoriaError if there is no answer.
   */
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
    const { client, clock } = this.#options;
    if (call.product === 'gateway')
      return {
        ...NOTHING_TO_CLOSE,
        extract: ({ count = 1 }) => makeMembers(call, count, { ...this.#options, sentAt: clock.monotonic() }),
      };
    if (call.product === 'list' && call.url === undefined)
      return { ...NOTHING_TO_CLOSE, extract: () => this.#readFile(call) };
    const connection = await client.connect(call, signal);
    if (call.product === 'list')
      return {
        extract: (_, options) => this.#readUrl(call, connection, options.gate),
        close: () => connection.close(),
      };
    return {
      extract: ({ count = 1 }, options) => connection.extract({ ...call, count }, options),
      close: () => connection.close(),
    };
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

  #decode(body: Uint8Array, call: ListCall): DecodedDraw {
    const { clock, refuses } = this.#options;
    return decodeList(body, call, { refuses, wallAt: clock.now() });
  }
}

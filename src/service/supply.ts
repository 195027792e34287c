/**
 * How sources get their members: by a call to a service, by making names for a gateway, or by reading a list. A source
 * does not know which: each is a connection that is opened, asked once, and closed.
 */
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import { bodyText, type DrawAnswer, quoteText } from './answer.ts';
import { extract } from './client.ts';
import type { DecodedDraw, RefuseAddress } from './decode.ts';
import { makeMembers } from './gateway.ts';
import { linkSecrets } from './link/link-url.ts';
import { decodeList, listBody, readListFile } from './list.ts';
import { type CountlessCall, type DrawCall, type ListCall, listRequest, serviceUrl } from './request.ts';
import { Transport, type TransportOptions, type WriteGate } from './transport.ts';

/** It reads the options of each connection when it opens the connection, so they may be getters. */
interface SupplyOptions extends Omit<TransportOptions, 'signal'> {
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

  /** `signal` cancels the opening and the call. */
  async connect(call: CountlessCall, signal: AbortSignal): Promise<SupplyConnection> {
    const { clock, refuses } = this.#options;
    if (call.product === 'gateway')
      return {
        ...NOTHING_TO_CLOSE,
        extract: ({ count = 1 }) => makeMembers(call, count, { ...this.#options, sentAt: clock.monotonic() }),
      };
    if (call.product === 'list' && call.url === undefined)
      return { ...NOTHING_TO_CLOSE, extract: () => this.#readFile(call) };
    const transport = await Transport.open(serviceUrl(call), { ...this.#options, signal });
    return {
      extract: ({ count = 1 }, options) =>
        call.product === 'list'
          ? this.#readUrl(call, transport, options.gate)
          : extract(transport, { ...call, count }, { ...options, refuses }),
      close: () => transport.close(),
    };
  }

  /** @param url - the URL, whose placeholders `get` may have replaced. */
  async open(url: Secret, signal: AbortSignal): Promise<UrlConnection> {
    const secrets = linkSecrets(url, { headers: {}, body: undefined });
    const server = serviceUrl({ baseUrl: new URL(url.reveal()).origin });
    const transport = await Transport.open(server, { ...this.#options, signal });
    return {
      get: async (asked, gate) => {
        const { status, body } = await transport.exchange(listRequest({ url: asked }, undefined), gate);
        return { status, text: quoteText(bodyText(body), MAX_TEXT, secrets) };
      },
      close: () => transport.close(),
    };
  }

  async #readFile(call: ListCall): Promise<DrawAnswer> {
    const sentAt = this.#options.clock.monotonic();
    return { ...this.#decode(await readListFile(call.file ?? ''), call), sentAt };
  }

  async #readUrl(call: ListCall, transport: Transport, gate: WriteGate): Promise<DrawAnswer> {
    const known = this.#lists.get(call.instance);
    const reply = await transport.exchange(listRequest(call, known?.etag), gate);
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

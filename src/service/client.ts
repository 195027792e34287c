/**
 * How sources get their members: by a call to a service or to the link of another vendor, by making names for a gateway,
 * or by reading a list. A source does not know which: each is a connection that is opened, asked once, and closed; refill
 * decides about retries. Every failure is a NoriaError that names the host, what happened and what to do, and never
 * contains a key: code service-blocked, service-not-found, service-protocol or link-unreadable, or one of `Transport`.
 */
import { NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import { type AnswerOrigin, bodyText, type DrawAnswer, quoteText, unexpectedStatus } from './answer.ts';
import { SUCCESS } from './codes.ts';
import {
  type DecodedDraw,
  type DecodedList,
  decodeDraw,
  decodeList as decodeRecords,
  type RefuseAddress,
} from './decode.ts';
import { makeMembers } from './gateway.ts';
import { type DecodedLink, decodeLink, tooFastAnswer } from './link/decode-link.ts';
import { linkSecrets } from './link/link-url.ts';
import { decodeList, listBody, readListFile } from './list.ts';
import {
  type AreasCall,
  areasRequest,
  type CountlessCall,
  type DrawCall,
  extractRequest,
  type InstancesCall,
  instancesRequest,
  type LinkCall,
  type ListCall,
  listRequest,
  type ServiceCall,
  type ServiceRequest,
  serviceUrl,
} from './request.ts';
import { Transport, type TransportOptions, type WriteGate } from './transport.ts';

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

/** The HTTP status with which many vendors refuse a call that comes too early (RFC 6585). */
const TOO_MANY_REQUESTS = 429;

export class Supply {
  readonly #options: ConstructorParameters<typeof Supply>[0];
  /** The last answer of each list's URL, with its ETag: the server sends an unchanged list only once. */
  readonly #lists = new Map<string, { readonly etag: string; readonly answer: DrawAnswer }>();

  /** `options` may be getters: they are read when a connection is opened. */
  constructor(
    options: Omit<TransportOptions, 'signal'> & { readonly random: Random; readonly refuses: RefuseAddress },
  ) {
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

interface ExtractOptions {
  readonly refuses: RefuseAddress;
  /** Secrets that noria masks in the service's texts, in addition to the key of the call or the secrets of its link. */
  readonly secrets?: readonly Secret[];
  readonly gate?: WriteGate;
}

export async function extract(
  transport: Transport,
  call: ServiceCall,
  options: ExtractOptions,
): Promise<DrawAnswer> {
  if (call.product === 'link') return extractLink(transport, call, options);
  const { refuses, secrets = [], gate } = options;
  return answerTo(
    transport,
    extractRequest(call),
    { secrets: [call.key, ...secrets], gate },
    (body, origin) => decodeDraw(body, { ...origin, ...call, refuses }),
  );
}

export async function extractLink(
  transport: Transport,
  call: LinkCall,
  { refuses, secrets = [], gate }: ExtractOptions,
): Promise<DecodedLink & { readonly sentAt: number }> {
  const asked = { secrets: [...call.secrets, ...secrets], gate };
  return answerTo(transport, extractRequest(call), asked, (body, origin, status) =>
    status === TOO_MANY_REQUESTS
      ? tooFastAnswer(body, origin)
      : decodeLink(body, { ...call, ...origin, refuses, wallAt: transport.clock.now() }),
  );
}

/** Operation 9: the area lines from which an exclusive instance can get more servers. */
export function areas(transport: Transport, call: AreasCall, gate?: WriteGate): Promise<DecodedList> {
  return answerTo(transport, areasRequest(call), { secrets: [call.key], gate }, (body, origin) =>
    decodeRecords('areas', body, origin),
  );
}

export function instances(transport: Transport, call: InstancesCall, gate?: WriteGate): Promise<DecodedList> {
  return answerTo(transport, instancesRequest(call), { secrets: [call.key], gate }, (body, origin) =>
    decodeRecords('instances', body, origin),
  );
}

/** The specification names no HTTP status for errors, so an error code counts with any status. A success needs 200. */
async function answerTo<Decoded extends { readonly code: string }>(
  transport: Transport,
  request: ServiceRequest,
  { secrets, gate }: { readonly secrets: readonly Secret[]; readonly gate: WriteGate | undefined },
  decode: (body: Uint8Array, origin: AnswerOrigin, status: number) => Decoded,
): Promise<Decoded & { readonly sentAt: number }> {
  const reply = await transport.exchange(request, gate);
  const { status, body, sentAt } = reply;
  const origin = { host: request.url.host, secrets };
  try {
    const decoded = decode(body, origin, status);
    if (status === 200 || decoded.code !== SUCCESS) return { ...decoded, sentAt };
  } catch (error) {
    if (status === 200 || !(error instanceof NoriaError)) throw error;
    // ignored: the caller gets the error for the HTTP status, which explains more
  }
  throw unexpectedStatus(reply, bodyText(body), origin);
}

/**
 * What a failed exchange is called: from the errors of sockets, names, TLS and HTTP to one sentence that names the host, what
 * happened and what to do. Pure. Nothing of the request is quoted, so no key can be.
 */
import { errors } from 'undici';
import { describeError, type FaultCode, NoriaError } from '../core/faults.ts';
import { oneLine } from './fields.ts';

/** How far an exchange has come. */
export interface ExchangeProgress {
  /** Host and port of the service, as the address has them. */
  readonly host: string;
  /** What is being waited for. */
  phase: 'connection' | 'answer' | 'body';
  /** Monotonic ms. */
  readonly startedAt: number;
}

interface Kind {
  readonly code: FaultCode;
  readonly says: (host: string, ms: number) => string;
}

const REFUSED: Kind = {
  code: 'service-transport',
  says: (host, ms) =>
    `${host} refused the connection after ${ms} ms; check service.baseUrl, and whether the service is up`,
};
const CUT: Kind = {
  code: 'service-transport',
  says: (host, ms) => `${host} ended the connection after ${ms} ms, before the whole answer had come`,
};
const NO_ADDRESS: Kind = {
  code: 'service-transport',
  says: (host, ms) =>
    `no address was found for ${host} in ${ms} ms; check the host name and this machine's name resolution`,
};
const NO_WAY: Kind = {
  code: 'service-transport',
  says: (host, ms) => `${host} could not be reached, as told after ${ms} ms; check this machine's network`,
};
const TOO_LARGE: Kind = {
  code: 'service-protocol',
  says: (host) => `${host} sent more than an answer can be: over 1 MiB; check service.baseUrl`,
};
const NOT_HTTP: Kind = {
  code: 'service-blocked',
  says: (host) => `what ${host} sent is not HTTP; check host, port and http:// or https:// in the address`,
};

const KINDS: Readonly<Record<string, Kind>> = {
  ECONNREFUSED: REFUSED,
  ECONNRESET: CUT,
  EPIPE: CUT,
  UND_ERR_SOCKET: CUT,
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: CUT,
  ENOTFOUND: NO_ADDRESS,
  EAI_AGAIN: NO_ADDRESS,
  ENODATA: NO_ADDRESS,
  EHOSTUNREACH: NO_WAY,
  ENETUNREACH: NO_WAY,
  EADDRNOTAVAIL: NO_WAY,
  ETIMEDOUT: NO_WAY,
  UND_ERR_RES_EXCEEDED_MAX_SIZE: TOO_LARGE,
  UND_ERR_HEADERS_OVERFLOW: NOT_HTTP,
};

/** Codes of a TLS handshake or certificate that failed, as OpenSSL and Node name them. */
const TLS_CODE = /^(?:EPROTO$|ERR_TLS|ERR_SSL)|CERT|SELF_SIGNED|^UNABLE_TO/;

/**
 * The fault that an exchange failed with.
 *
 * @param nowAt - monotonic ms.
 * @returns a NoriaError service-transport, service-blocked or service-protocol; `context`: host, phase, ms, and errno where
 * the system named one.
 */
export function transportError(
  error: unknown,
  { host, phase, startedAt }: ExchangeProgress,
  nowAt: number,
): NoriaError {
  const ms = Math.round(nowAt - startedAt);
  const errno = codeOf(error);
  const { code, says } = kindOf(errno, error);
  const context = { host, phase, ms, ...(errno === undefined ? {} : { errno }) };
  // The parser's own error holds what was received, in which a request may be quoted: it is not passed on.
  const cause = error instanceof errors.HTTPParserError ? {} : { cause: error };
  return new NoriaError(code, says(host, ms), { ...cause, context });
}

function kindOf(errno: string | undefined, error: unknown): Kind {
  const known = errno !== undefined && Object.hasOwn(KINDS, errno) ? KINDS[errno] : undefined;
  if (known !== undefined) return known;
  if (error instanceof errors.HTTPParserError) return NOT_HTTP;
  const reason = errno ?? oneLine(describeError(error));
  const tls = errno !== undefined && TLS_CODE.test(errno);
  return {
    code: 'service-transport',
    says: (host, ms) =>
      tls
        ? `no TLS connection came about with ${host} (${reason}) after ${ms} ms; check its certificate, and whether the address should begin with http://`
        : `the call to ${host} failed after ${ms} ms: ${reason}`,
  };
}

/** The system's or the library's code; an error of several addresses has that of the first. */
function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/**
 * Maps the errors of DNS, sockets, TLS and HTTP to a NoriaError whose message says the host, what happened and what to do. All
 * functions are pure. The message quotes nothing of the request, so it cannot contain the key.
 */
import { errors } from 'undici';
import { describeError, type FaultCode, NoriaError } from '../core/faults.ts';
import { oneLine } from './fields.ts';

export interface ExchangeProgress {
  /** Host and port of the service. */
  readonly host: string;
  /** In which phase the exchange is: opening the connection, waiting for the answer, or reading its body. */
  phase: 'connection' | 'answer' | 'body';
  /** The monotonic moment at which the exchange started. */
  readonly startedAt: number;
}

interface TransportFault {
  readonly code: FaultCode;
  readonly message: (host: string, ms: number) => string;
}

const REFUSED: TransportFault = {
  code: 'service-transport',
  message: (host, ms) =>
    `${host} refused the connection after ${ms} ms; check service.baseUrl, or url of the link, and whether the service is up`,
};
const CLOSED: TransportFault = {
  code: 'service-transport',
  message: (host, ms) => `${host} closed the connection after ${ms} ms, before the answer was complete`,
};
const UNRESOLVED: TransportFault = {
  code: 'service-transport',
  message: (host, ms) =>
    `could not resolve ${host} (after ${ms} ms); check the host name and this machine's DNS`,
};
const UNREACHABLE: TransportFault = {
  code: 'service-transport',
  message: (host, ms) => `could not reach ${host} (after ${ms} ms); check this machine's network`,
};
const TOO_LARGE: TransportFault = {
  code: 'service-protocol',
  message: (host) =>
    `${host} sent more than 1 MiB, the limit of an answer; check service.baseUrl, or url of the link`,
};
const NOT_HTTP: TransportFault = {
  code: 'service-blocked',
  message: (host) =>
    `${host} did not answer with HTTP; check the host, the port and http:// or https:// of the address`,
};

const FAULT_OF_CODE: Readonly<Record<string, TransportFault>> = {
  ECONNREFUSED: REFUSED,
  ECONNRESET: CLOSED,
  EPIPE: CLOSED,
  UND_ERR_SOCKET: CLOSED,
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: CLOSED,
  ENOTFOUND: UNRESOLVED,
  EAI_AGAIN: UNRESOLVED,
  ENODATA: UNRESOLVED,
  EHOSTUNREACH: UNREACHABLE,
  ENETUNREACH: UNREACHABLE,
  EADDRNOTAVAIL: UNREACHABLE,
  ETIMEDOUT: UNREACHABLE,
  UND_ERR_RES_EXCEEDED_MAX_SIZE: TOO_LARGE,
  UND_ERR_HEADERS_OVERFLOW: NOT_HTTP,
};

/** Matches the codes of OpenSSL and Node for a failed TLS handshake or an invalid certificate. */
const TLS_CODE = /^(?:EPROTO$|ERR_TLS|ERR_SSL)|CERT|SELF_SIGNED|^UNABLE_TO/;

/**
 * @param nowAt - the monotonic moment at which the exchange failed.
 * @returns service-transport, service-blocked or service-protocol. `context` has host, phase, ms and, if known,
 * errno.
 */
export function transportError(
  error: unknown,
  { host, phase, startedAt }: ExchangeProgress,
  nowAt: number,
): NoriaError {
  const ms = Math.round(nowAt - startedAt);
  const errno = codeOf(error);
  const { code, message } = faultOf(errno, error);
  const context = { host, phase, ms, ...(errno === undefined ? {} : { errno }) };
  // The error of the HTTP parser contains received bytes, which may quote the request with its key. So the NoriaError does not
  // get this error as its cause.
  const cause = error instanceof errors.HTTPParserError ? {} : { cause: error };
  return new NoriaError(code, message(host, ms), { ...cause, context });
}

function faultOf(errno: string | undefined, error: unknown): TransportFault {
  const known = errno !== undefined && Object.hasOwn(FAULT_OF_CODE, errno) ? FAULT_OF_CODE[errno] : undefined;
  if (known !== undefined) return known;
  if (error instanceof errors.HTTPParserError) return NOT_HTTP;
  const reason = errno ?? oneLine(describeError(error));
  const tls = errno !== undefined && TLS_CODE.test(errno);
  return {
    code: 'service-transport',
    message: (host, ms) =>
      tls
        ? `the TLS handshake with ${host} failed after ${ms} ms (${reason}); check its certificate, and whether the address should begin with http://`
        : `the call to ${host} failed after ${ms} ms: ${reason}`,
  };
}

/**
 * The error code of the system or the library. An AggregateError of several addresses has the code of the first
 * error.
 */
function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

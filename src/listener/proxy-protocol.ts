/**
 * The header of the PROXY protocol, versions 1 and 2, with which a TCP balancer says which client it serves
 * (https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt).
 */
import type { Socket } from 'node:net';
import { isIP } from 'node:net';

export interface ProxyHeader {
  readonly bytes: number;
  /** The address of the client; undefined if the balancer speaks for itself (LOCAL) or does not know it (UNKNOWN). */
  readonly client: string | undefined;
}

/** The longest header of version 1, with its CR LF (section 2.1). */
const MAX_V1_BYTES = 107;
const V2_SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V2_HEAD_BYTES = 16;
/** Addresses and TLVs; balancers send a few hundred bytes. */
const MAX_V2_PAYLOAD_BYTES = 4_096;
const V1_LINE =
  /^PROXY (?:TCP([46]) ([0-9a-fA-F:.]{2,39}) ([0-9a-fA-F:.]{2,39}) (\d{1,5}) (\d{1,5})|UNKNOWN[ -~]*)$/;

/** @returns undefined if the header is incomplete, `invalid` if the bytes cannot become one. */
export function parseProxyHeader(bytes: Buffer): ProxyHeader | 'invalid' | undefined {
  const signature = bytes.subarray(0, V2_SIGNATURE.length);
  if (signature.equals(V2_SIGNATURE.subarray(0, signature.length)))
    return signature.length < V2_SIGNATURE.length ? undefined : parseV2(bytes);
  return parseV1(bytes);
}

function parseV1(bytes: Buffer): ProxyHeader | 'invalid' | undefined {
  const text = bytes.toString('latin1', 0, MAX_V1_BYTES);
  const end = text.indexOf('\r\n');
  if (end < 0) {
    const start = text.slice(0, 6);
    return 'PROXY '.startsWith(start) && bytes.length < MAX_V1_BYTES ? undefined : 'invalid';
  }
  const fields = V1_LINE.exec(text.slice(0, end));
  if (fields === null) return 'invalid';
  const [, family, client, server = '', ...ports] = fields;
  const header = { bytes: end + 2 };
  if (family === undefined || client === undefined) return { ...header, client: undefined };
  const isValid =
    isIP(client) === Number(family) &&
    isIP(server) === Number(family) &&
    ports.every((port) => Number(port) <= 65_535);
  return isValid ? { ...header, client } : 'invalid';
}

function parseV2(bytes: Buffer): ProxyHeader | 'invalid' | undefined {
  if (bytes.length < V2_HEAD_BYTES) return undefined;
  const versionAndCommand = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const payloadBytes = bytes.readUInt16BE(14);
  const isLocal = versionAndCommand === 0x20;
  if ((!isLocal && versionAndCommand !== 0x21) || payloadBytes > MAX_V2_PAYLOAD_BYTES) return 'invalid';
  const end = V2_HEAD_BYTES + payloadBytes;
  if (bytes.length < end) return undefined;
  const payload = bytes.subarray(V2_HEAD_BYTES, end);
  if (isLocal) return { bytes: end, client: undefined };
  if (family === 0x11)
    return payloadBytes < 12 ? 'invalid' : { bytes: end, client: [...payload.subarray(0, 4)].join('.') };
  if (family === 0x21) return payloadBytes < 36 ? 'invalid' : { bytes: end, client: ipv6(payload) };
  return { bytes: end, client: undefined }; // UDP and UNIX sockets: the specification says to use the connection's own address
}

function ipv6(bytes: Buffer): string {
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(':');
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}

/**
 * Reads the header from a new connection, and makes `remoteAddress` of the socket the client's address. What follows the
 * header stays in the socket.
 * @param done - called once; false if the connection has no valid header or has closed.
 */
export function readProxyHeader(socket: Socket, done: (valid: boolean) => void): void {
  let seen = Buffer.alloc(0);
  const finish = (valid: boolean): void => {
    socket.off('readable', onReadable).off('close', onClose).off('end', onClose);
    done(valid);
  };
  const onClose = () => finish(false);
  const onReadable = (): void => {
    for (let chunk: Buffer | null = socket.read(); chunk !== null; chunk = socket.read())
      seen = Buffer.concat([seen, chunk]);
    const header = parseProxyHeader(seen);
    if (header === undefined) return;
    if (header === 'invalid') {
      finish(false);
      return;
    }
    const { client, bytes } = header;
    if (client !== undefined) Object.defineProperty(socket, 'remoteAddress', { value: client });
    if (seen.length > bytes) socket.unshift(seen.subarray(bytes));
    finish(true);
  };
  socket.on('readable', onReadable).on('close', onClose).on('end', onClose);
}

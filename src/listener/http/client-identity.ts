/** Identifies the client of an HTTP request by its Proxy-Authorization field (HTTP Basic, RFC 7617). */
import { isUtf8 } from 'node:buffer';
import type { NoriaError } from '../../core/faults.ts';
import type { ClientCredentials, ClientIdentity } from '../access.ts';
import type { ClientConnection } from '../client-connection.ts';
import { badRequest } from '../refusal.ts';
import { fieldValues, type HeaderField } from './header-fields.ts';

/**
 * Identifies the client of a request. Call it before all other checks of the request, so that a client without access
 * learns nothing about targets and routing options.
 */
export function identifyRequest(
  fields: readonly HeaderField[],
  connection: ClientConnection,
): ClientIdentity | NoriaError {
  if (connection.refusalError !== undefined) return connection.refusalError;
  const credentials = fieldValues(fields, 'proxy-authorization');
  if (credentials.length > 1) return badRequest('the request has more than one Proxy-Authorization field');
  if (fieldValues(fields, 'host').length > 1) return badRequest('the request has more than one Host field');
  return connection.identify(parseBasicCredentials(credentials[0]));
}

/**
 * Parses the value of Proxy-Authorization. Accepts only the Basic scheme; text that is not UTF-8 is decoded as Latin-1.
 * @returns undefined without a value, for another scheme, or for invalid base64. Text without a colon is a user name.
 */
export function parseBasicCredentials(header: string | undefined): ClientCredentials | undefined {
  if (header === undefined) return undefined;
  const encoded = /^basic +([A-Za-z0-9+/_-]+=*) *$/i.exec(header)?.[1];
  if (encoded === undefined) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString(isUtf8(bytes) ? 'utf8' : 'latin1');
  const colon = text.indexOf(':');
  if (colon < 0) return { username: text, password: '' };
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

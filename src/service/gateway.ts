/**
 * Makes the members of a vendor's gateway: one address for all, where a word in the user name chooses the exit. No call
 * is needed, so nothing limits how often noria makes a name.
 */
import { createHash } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { describeError, NoriaError } from '../core/faults.ts';
import { type Random, randomBelow } from '../core/random.ts';
import type { DrawAnswer } from './answer.ts';
import { SUCCESS } from './codes.ts';
import type { RefuseAddress } from './decode.ts';
import type { DrawnEntry } from './fields.ts';
import type { GatewayCall } from './request.ts';

/** What each member replaces by its own name in the user name of the gateway. */
export const SESSION_TAG = '{session}';
const SESSION_LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';
const SESSION_LENGTH = 12;

/** Identifies the account at the gateway, without its secrets. */
export function gatewayIdentity(address: string, username: string): string {
  const text = `${address} ${username}`;
  return `gateway-${createHash('sha256').update(text, 'utf8').digest('hex').slice(0, 16)}`;
}

/**
 * The members have the gateway's IP address, so that no tunnel waits for a name server.
 *
 * @throws NoriaError service-transport if the name of the gateway has no address.
 */
export async function makeMembers(
  { host, port, username, password, protocol }: GatewayCall,
  count: number,
  {
    random,
    refuses,
    sentAt,
  }: { readonly random: Random; readonly refuses: RefuseAddress; readonly sentAt: number },
): Promise<DrawAnswer> {
  const address = isIP(host) === 0 ? await resolve(host) : host;
  const refused = refuses(address, port);
  const answer = { code: SUCCESS, message: '', quota: {}, sentAt };
  if (refused !== undefined) return { ...answer, entries: [], dropped: { [refused]: count } };
  const entries = Array.from({ length: count }, (): DrawnEntry => {
    const session = Array.from({ length: SESSION_LENGTH }, () =>
      SESSION_LETTERS.charAt(randomBelow(random, SESSION_LETTERS.length)),
    ).join('');
    const login = { username: username.replaceAll(SESSION_TAG, session), password };
    return { host: address, port, protocol, login, exitName: session };
  });
  return { ...answer, entries, dropped: {} };
}

async function resolve(host: string): Promise<string> {
  try {
    return (await lookup(host)).address;
  } catch (cause) {
    const message = `the address of the gateway ${host} cannot be found: ${describeError(cause)}`;
    throw new NoriaError('service-transport', message, { cause });
  }
}

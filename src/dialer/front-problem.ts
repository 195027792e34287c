/** Describes a failed hop through the front proxy: what happened, and what to do. */
import type { FaultCode } from '../core/faults.ts';
import type { HopFailure } from './front-hop.ts';

export interface FrontNames {
  /** A noun phrase, such as `the front proxy bastion:3128`. */
  readonly front: string;
  /** The server behind the front proxy, as a noun phrase. */
  readonly server: string;
  /** The configuration key of the front proxy, such as `service.via`. */
  readonly key: string;
}

export interface FrontProblem {
  /** Without a full stop at the end. */
  readonly reason: string;
  readonly advice: string;
}

/** Maps a failed hop to the fault of the attempt. */
export function faultOfHop({ problem, answeredOthers }: HopFailure): FaultCode {
  switch (problem) {
    case 'local':
    case 'unreachable':
      return 'member-unreachable';
    case 'silent':
      return answeredOthers === true ? 'member-unreachable' : 'front-proxy-silent';
    default:
      return 'front-proxy-failed';
  }
}

/**
 * Whether the front proxy may be able to connect noria to another member, although the front proxy has reached no
 * member so far.
 */
export function helpsAnotherMember(
  failures: readonly { readonly hop?: HopFailure | undefined }[],
  maxAttempts: number,
): boolean {
  const isAboutMember = ({ hop }: (typeof failures)[number]) =>
    hop?.problem === 'refused' || hop?.problem === 'silent';
  return failures.length < maxAttempts && failures.every(isAboutMember);
}

export function describeHop(
  { problem, detail }: HopFailure,
  { front, server, key }: FrontNames,
): FrontProblem {
  switch (problem) {
    case 'local':
      return {
        reason: `this machine could not open a connection to ${front} (${detail})`,
        advice: 'raise the limit of open files, or free ports',
      };
    case 'unresolved':
      return {
        reason: `could not resolve the name of ${front} (${detail})`,
        advice: `check the host in ${key} and the DNS of this machine`,
      };
    case 'down':
      return {
        reason: `could not connect to ${front} (${detail})`,
        advice: `check that it runs and that this machine may reach it; check host and port in ${key}`,
      };
    case 'login':
      return {
        reason: `${front} requires other credentials (${detail})`,
        advice: `set its user name and password in ${key}`,
      };
    case 'refused':
      return {
        reason: `${front} refused to connect to ${server} (${detail})`,
        advice: 'allow the host and the port in the front proxy; many allow CONNECT only to port 443',
      };
    case 'protocol':
      return {
        reason: `${front} did not answer like a proxy (${detail})`,
        advice: `check the scheme and the port in ${key}`,
      };
    case 'silent':
      return {
        reason: `${front} did not answer (${detail})`,
        advice: `check that the front proxy works and can reach ${server}`,
      };
    case 'unreachable':
      return {
        reason: `${front} could not reach ${server} (${detail})`,
        advice: 'check the name, and whether the front proxy may reach it',
      };
  }
}

/** The error for an address at which noria cannot listen, with advice for the operator. */
import { describeError, NoriaError } from './faults.ts';

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there (address in use); stop it, or choose another port',
  EADDRNOTAVAIL: 'this machine has no such address; use 127.0.0.1, or an address that `ip address` shows',
  EAFNOSUPPORT: 'this machine has no IPv6; use an IPv4 address such as 127.0.0.1',
  EACCES:
    'permission denied for the user that runs noria; choose a port above 1023, or grant CAP_NET_BIND_SERVICE',
  ENOTFOUND: 'the host name does not exist; use an IP address',
  EBADF: 'no such file descriptor was inherited; start noria through a systemd socket unit',
  EINVAL: 'the file descriptor is not a listening socket; check the systemd socket unit',
  ENOTSOCK: 'the file descriptor is not a listening socket; check the systemd socket unit',
};

/** @param where - the address that noria could not listen on. */
export function listenFailure(where: string, cause: unknown): NoriaError {
  const errno = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const reason = Object.hasOwn(REASONS, errno) ? REASONS[errno] : describeError(cause);
  return new NoriaError('listen-failed', `cannot listen on ${where}: ${reason}`, { cause });
}

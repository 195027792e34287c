/** Listening sockets that whoever started this process handed over: socket activation (sd_listen_fds(3)). */

/** Descriptors from here on. */
const FIRST_FD = 3;

/**
 * The descriptors that were handed over to this very process; none when nothing was.
 *
 * LISTEN_PID is checked: a shell or npm between the service manager and noria would leave other things at those numbers.
 */
export function handedOverSockets(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): ReadonlySet<number> {
  const { LISTEN_FDS: count, LISTEN_PID: meant } = env;
  if (count === undefined || !/^\d{1,4}$/.test(count) || meant !== String(pid)) return new Set();
  return new Set(Array.from({ length: Number(count) }, (_, index) => FIRST_FD + index));
}

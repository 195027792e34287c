/** The data plane inside the daemon's process. */
import { type DialerOptions, type DialerSettings, MemberDialer } from '../dialer/dialer.ts';
import type { Pool } from '../pool/pool.ts';
import { clientDesk } from './client-desk.ts';
import type { DataPlane } from './data-plane.ts';
import { ListenerSet, type ListenerSetOptions } from './listener-set.ts';

export interface LocalPlaneOptions
  extends Omit<ListenerSetOptions, 'dialer' | 'desk'>,
    Pick<DialerOptions, 'leases' | 'onSourceFault' | 'onNetwork'> {
  readonly pool: Pool;
  readonly dialer: DialerSettings;
}

export function openLocalPlane({ dialer: settings, ...options }: LocalPlaneOptions): DataPlane {
  const guard = { mark: options.mark, ownAddresses: () => listeners.guard.ownAddresses() };
  const dialer = new MemberDialer({ ...options, ...settings, guard });
  const listeners: ListenerSet = new ListenerSet({
    ...options,
    dialer,
    desk: clientDesk(options.pool, dialer),
  });
  return {
    get listeners() {
      return listeners.status();
    },
    workers: { wanted: 1, running: 1 },
    dialer,
    update: (next, drainTimeoutMs) => listeners.update(next, drainTimeoutMs),
    commit(next) {
      listeners.commit();
      dialer.configure(next.dialer);
    },
    setContext: (context) => listeners.setContext(context),
    resetRefusals: (source) => dialer.resetRefusals(source),
    closeConnections: (of) => dialer.closeConnections(options.pool.leasesOf(of)),
    prepareToClose() {}, // nothing to prepare: an update in this process cannot hang
    drain: () => listeners.drain(),
    async close() {
      await listeners.close();
      await dialer.close();
    },
  };
}

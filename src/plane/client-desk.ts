/** What clients ask and say through the proxy, answered by the pool and the dialer of this process. */
import type { MemberDialer } from '../dialer/dialer.ts';
import type { ClientDesk } from '../listener/http/client-desk.ts';
import type { Pool } from '../pool/pool.ts';

export function clientDesk(pool: Pool, dialer: MemberDialer): ClientDesk {
  return {
    clients: pool.clients,
    rotateSession: (name) => pool.rotateSession(name) !== undefined,
    closeTunnels: (name, host) => dialer.closeConnections(pool.leasesTo(name, host)),
  };
}

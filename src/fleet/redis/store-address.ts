/** The address of the fleet's store: one server, or Sentinels that know which server is the primary. */
import { describeError } from '../../core/faults.ts';
import { formatHostPort } from '../../core/host-port.ts';
import {
  lostStore,
  openStoreClient,
  type StoreClient,
  type StoreDialOptions,
  type StoreLogin,
  StoreRefusal,
  type StoreServer,
} from './store-client.ts';

export interface StoreAddress {
  /** How messages name the store. Contains no secret. */
  readonly label: string;
  /** If `sentinel` is set, its answer replaces this host and port. */
  readonly server: StoreServer;
  readonly sentinel?: {
    /** The name of the primary in the configuration of the Sentinels. */
    readonly primary: string;
    readonly addresses: readonly { readonly host: string; readonly port: number }[];
  };
}

/**
 * Opens a connection to the primary, the server that accepts writes.
 * @throws NoriaError fleet-store-lost, fleet-store-unusable
 */
export async function openPrimary(address: StoreAddress, options: StoreDialOptions): Promise<StoreClient> {
  const { deadlineMs } = options;
  const open = (server: StoreServer) => openStoreClient(server, options);
  const primary = await findPrimary(address, open, deadlineMs);
  const client = await open({ ...address.server, ...primary });
  if (address.sentinel === undefined) return client;
  const [role] = asList(await client.call(['ROLE'], deadlineMs));
  if (role === 'master') return client;
  client.close();
  const name = formatHostPort(primary.host, primary.port);
  throw lostStore(
    address.label,
    `the Sentinels name ${name} as the primary, but its role is ${String(role)}`,
  );
}

type Open = (server: StoreServer) => Promise<StoreClient>;

async function findPrimary(
  { label, server, sentinel }: StoreAddress,
  open: Open,
  deadlineMs: number,
): Promise<{ readonly host: string; readonly port: number }> {
  if (sentinel === undefined) return server;
  const problems: string[] = [];
  for (const each of sentinel.addresses) {
    const name = formatHostPort(each.host, each.port);
    try {
      const client = await openSentinel({ ...server, ...each, database: 0 }, open, deadlineMs);
      try {
        const question = ['SENTINEL', 'get-master-addr-by-name', sentinel.primary];
        const [host, port] = asList(await client.call(question, deadlineMs));
        if (typeof host === 'string') return { host, port: Number(port) };
        problems.push(`the Sentinel ${name} monitors no primary with this name`);
      } finally {
        client.close();
      }
    } catch (error) {
      problems.push(`${name}: ${describeError(error)}`);
    }
  }
  throw lostStore(
    label,
    `no Sentinel knows the address of the primary ${sentinel.primary} (${problems.join('; ')})`,
  );
}

/**
 * Connects first without a password, because often only the store requires one. If the Sentinel refuses, connects with
 * the password of the store.
 */
async function openSentinel(server: StoreServer, open: Open, deadlineMs: number): Promise<StoreClient> {
  const anonymous: StoreLogin = {};
  if (server.login.password === undefined) return open(server);
  const client = await open({ ...server, login: anonymous });
  try {
    await client.call(['PING'], deadlineMs);
    return client;
  } catch (error) {
    client.close();
    if (error instanceof StoreRefusal) return open(server);
    throw error;
  }
}

function asList(reply: unknown): readonly unknown[] {
  return Array.isArray(reply) ? reply : [];
}

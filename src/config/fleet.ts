/** Resolves the section `fleet`: reads the URL of the store and the certificates from their files. */
import { createSecureContext } from 'node:tls';
import { describeError } from '../core/faults.ts';
import { Secret } from '../core/secret.ts';
import type { FleetConfig, FleetTls } from './config.ts';
import type { ResolveContext } from './credentials.ts';
import { type FileFleet, type StoreUrl, storeUrl } from './schema-fleet.ts';

/**
 * The URL of the store if the fleet uses Sentinels and has no `url`. noria gets host and port from the Sentinels
 * instead.
 */
const ANY_STORE: StoreUrl = {
  tls: false,
  host: 'localhost',
  port: 6379,
  username: undefined,
  password: undefined,
  database: 0,
};

/** @returns undefined if the section is incomplete or invalid; `problems` then says why. */
export function resolveFleet(fleet: FileFleet, context: ResolveContext): FleetConfig | undefined {
  const { problems, files } = context;
  const { url: plain, urlFile: file, sentinel } = fleet;
  const found = files.readSecret('fleet.url', { plain, file }, storeUrl());
  const wanted = ['fleet.url', 'fleet.urlFile'];
  if (found === undefined && sentinel === undefined && !wanted.some((path) => problems.has(path))) {
    problems.missing('fleet', 'has no store; set url or urlFile', { wanted });
  }
  const url = found ?? (sentinel && ANY_STORE);
  const tls = fleet.tls && resolveStoreTls(fleet.tls, context);
  if (url === undefined || problems.has('fleet.tls')) return undefined;
  if (tls !== undefined && !url.tls) {
    problems.error('fleet.tls', 'has no effect without TLS; begin the URL with rediss://', 'key');
    return undefined;
  }
  return { url, name: fleet.name, replica: fleet.replica, tls, sentinel };
}

function resolveStoreTls(
  tls: NonNullable<FileFleet['tls']>,
  { problems, files }: ResolveContext,
): FleetTls | undefined {
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    problems.error('fleet.tls', 'needs both cert and key, or neither', 'key');
    return undefined;
  }
  const read = (name: 'ca' | 'cert' | 'key') =>
    tls[name] && files.readText(`fleet.tls.${name}`, tls[name], { isSecret: name === 'key' });
  const [ca, cert, key] = [read('ca'), read('cert'), read('key')];
  if (problems.has('fleet.tls')) return undefined;
  try {
    createSecureContext({ ca, cert, key });
  } catch (error) {
    problems.error('fleet.tls', `these files cannot be used: ${describeError(error)}`, 'key');
    return undefined;
  }
  const absolute = (path: string | undefined) => path && files.absolute(path);
  return {
    caFile: absolute(tls.ca),
    certFile: absolute(tls.cert),
    keyFile: absolute(tls.key),
    ca,
    cert,
    key: key === undefined ? undefined : new Secret(key),
  };
}

/** From the configuration to each part's own options: the one place that knows both. */
import type { Config, SourceConfig } from './config/config.ts';
import { isPrivateAddress } from './core/networks.ts';
import type { Refuses } from './service/decode.ts';
import type { ExtractCall } from './service/request.ts';

/** What a call of a source is made with, but for the count. */
export function callOf(config: Config, source: SourceConfig): Omit<ExtractCall, 'count'> {
  return {
    product: source.product,
    method: config.service.method,
    instance: source.instance,
    key: source.key,
    params: source.params,
    format: source.format,
    ...(source.textLayout === undefined ? {} : { textLayout: source.textLayout }),
    ...(source.baseUrl === undefined ? {} : { baseUrl: source.baseUrl }),
    ...(source.extractHost === undefined ? {} : { extractHost: source.extractHost }),
  };
}

/** Where a source's calls go, as the pace is kept for: the instance at that address. */
export function addressOf(source: SourceConfig): string {
  return source.baseUrl ?? source.extractHost ?? '';
}

/** Every secret a source knows: masked in whatever text of an answer is kept. */
export function secretsOf(source: SourceConfig) {
  const { auth } = source.upstream;
  const credentials = auth.kind === 'none' ? undefined : auth.credentials;
  return [source.key, source.password, credentials?.password].filter((secret) => secret !== undefined);
}

/** Which addresses of an answer are no members. */
export function refusesOf(config: Config, isOwn: (host: string, port: number) => boolean): Refuses {
  const { allowPrivateAddresses } = config.pool;
  return (host, port) => {
    if (isOwn(host, port)) return 'own';
    return !allowPrivateAddresses && isPrivateAddress(host) ? 'private' : undefined;
  };
}

/**
 * Faults of the extraction service. Members outlive these faults, so clients must be served.
 *
 * After an answer that looks like a firewall's or makes no sense, noria calls the service again only minutes later, and
 * the short-lived members of the first instance expire meanwhile. So only the first instance gets such answers; members
 * of the second one serve the clients.
 */
import type { RuleAnswer } from '../../../src/sandbox/scenario.ts';
import type { Fault } from './fault.ts';

function answering(name: string, answer: RuleAnswer, of: 'all' | 'first' = 'all'): Fault {
  return {
    name: `service ${name}`,
    promise: 'served',
    begin: async ({ sandbox }) => {
      const [first] = sandbox.instances;
      const rule = sandbox.rules.add(of === 'first' && first ? { answer, instance: first.id } : { answer });
      return () => void sandbox.rules.remove(rule);
    },
  };
}

const unknownName: Fault = {
  name: 'service name does not resolve',
  promise: 'served',
  begin: async ({ configure }) => {
    await configure({ serviceUrl: 'http://service.invalid' });
    return () => configure({});
  },
};

export const SERVICE_FAULTS: readonly Fault[] = [
  answering('is slow', { fault: 'delay', ms: 1_500 }),
  answering('hangs', { fault: 'hang' }),
  answering('resets connections', { fault: 'reset' }),
  answering('refuses connections', { fault: 'refuse', forMs: 2_000 }),
  answering('answers with garbage', { fault: 'garbage' }, 'first'),
  answering('sends half of an answer', { fault: 'truncated' }, 'first'),
  answering('answers 8 MiB', { fault: 'huge' }, 'first'),
  answering('answers 500', { fault: 'status', status: 500 }, 'first'),
  answering('blocks noria with 403', { fault: 'status', status: 403 }, 'first'),
  answering('answers that calls come too often', { code: '12002' }),
  answering('has no proxies', { code: '10001' }),
  unknownName,
];

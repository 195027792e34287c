/** Networks and rules about targets, as `allow` and `denyTargets` of a listener take them. Pure. */
import { nearest } from '../core/nearest.ts';
import { isCidr } from '../core/networks.ts';
import { parseTargetRule, TARGET_SETS, wrongTargetRule } from '../core/target-rule.ts';
import type { Kind } from './kinds.ts';

/** A network in CIDR form, or one address. */
export function network(): Kind<string> {
  return {
    wants: 'a network in CIDR form, or an address',
    good: '192.0.2.0/24',
    json: { type: 'string' },
    shown: 'always',
    read: (text) => (isCidr(text) ? { value: text } : { wrong: 'is neither a network nor an address' }),
    write: (value) => value,
  };
}

/** A target that a listener refuses; its grammar is that of core/target-rule.ts. */
export function denyTarget(): Kind<string> {
  return {
    wants:
      'private, smtp, a host, a pattern such as *.example.com, a network in CIDR form, or ports such as :25 or :6000-6010',
    json: { type: 'string' },
    shown: 'always',
    read(text) {
      const rule = parseTargetRule(text);
      if (rule === undefined) return { wrong: wrongTargetRule(text) };
      // A lone word is a host as well, so what is nearly the name of a set is taken for a slip.
      const meant = rule.kind === 'host' && !text.includes('.') ? nearest(text, TARGET_SETS) : undefined;
      return meant === undefined
        ? { value: text }
        : { wrong: `is not a set of targets (did you mean ${meant}?)` };
    },
    write: (value) => value,
  };
}

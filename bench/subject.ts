/** The proxies that are measured, each in a process of its own, and what they are told. */
import type { World } from './world.ts';

export interface SubjectOptions {
  readonly world: World;
  /** What the members speak. */
  readonly protocol: 'http' | 'socks5';
  readonly members: number;
  /** Members that must be usable before the load begins. */
  readonly usable: number;
}

export const SUBJECTS = {
  noria: 'subject-noria.ts',
  'proxy-chain': 'subject-proxy-chain.ts',
} as const;

export type SubjectName = keyof typeof SUBJECTS;

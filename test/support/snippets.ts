/** Snippets of docs/clients.md: fenced blocks whose info string is a language, a client and what the snippet shows. */
import { readFileSync } from 'node:fs';

export interface Snippet {
  readonly language: string;
  readonly client: string;
  readonly shows: 'rotation' | 'session' | 'report';
  readonly text: string;
}

/** Returns the snippets to run, in the order of the page. */
export function readSnippets(page: string): Snippet[] {
  return [
    ...readFileSync(page, 'utf8').matchAll(/^```(\S+) (\S+) (rotation|session|report)\n([\s\S]*?)^```$/gm),
  ].map(([, language = '', client = '', shows, text = '']) => ({
    language,
    client,
    shows: shows === 'session' || shows === 'report' ? shows : 'rotation',
    text,
  }));
}

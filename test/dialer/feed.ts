/** Feeds bytes to a handshake in pieces, and describes a step in one line for comparison. */
import type { Handshake, HandshakeStep } from '../../src/dialer/handshake.ts';

/** Feeds the pieces to a handshake. Returns the last step and the bytes that the handshake did not take. */
export function feed(handshake: Handshake, pieces: readonly Buffer[]): [HandshakeStep, Buffer] {
  let step: HandshakeStep = { kind: 'more' };
  for (const [index, piece] of pieces.entries()) {
    step = handshake.take(piece);
    if (step.kind !== 'more') return [step, Buffer.concat(pieces.slice(index + 1))];
  }
  return [step, Buffer.alloc(0)];
}

export function summary(step: HandshakeStep): string {
  switch (step.kind) {
    case 'more':
      return 'more';
    case 'send':
      return `send ${step.bytes.toString('hex')}`;
    case 'accepted':
      return `accepted ${JSON.stringify(step.rest.toString('latin1'))}`;
    case 'failed': {
      const notes = [
        step.targetRefused === true ? ', target refused' : '',
        step.noConnect === true ? ', no CONNECT' : '',
      ];
      return `${step.fault}: ${step.detail}${notes.join('')}`;
    }
  }
}

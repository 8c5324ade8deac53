import { randomUUID } from "node:crypto";

export interface Event {
  id: string;
  name: string;
  startsAt: Date;
  seats: number;
}

const DEFAULT_SEATS = 40;

export function createEvent(name: string, startsAt: Date): Event {
  return { id: randomUUID(), name, startsAt, seats: DEFAULT_SEATS };
}

export function isFull(event: Event, guests: string[]): boolean {
  return guests.length >= event.seats;
}

export function daysUntil(event: Event, today: Date): number {
  const milliseconds = event.startsAt.getTime() - today.getTime();
  return Math.ceil(milliseconds / 86400000);
}

export function invite(event: Event, guests: string[], guest: string): string[] {
  if (isFull(event, guests)) {
    throw new Error("no seats left");
  }
  return [...guests, guest];
}

export function describe(event: Event): string {
  const day = event.startsAt.toISOString();
  return `${event.name} on ${day}`;
}

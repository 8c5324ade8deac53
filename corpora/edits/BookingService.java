package com.example.booking;

import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.HashMap;

public class BookingService {
    private final Map<String, List<Booking>> bookingsByRoom = new HashMap<>();
    private final NotificationSender sender;

    public BookingService(NotificationSender sender) {
        this.sender = sender;
    }

    public Booking book(String room, String guest, LocalDate from, LocalDate to) {
        if (room == null || room.isBlank()) {
            throw new IllegalArgumentException("room is missing");
        }
        if (guest == null || guest.isBlank()) {
            throw new IllegalArgumentException("guest is missing");
        }
        if (from.isAfter(to)) {
            throw new IllegalArgumentException("from is after to");
        }
        for (Booking other : bookingsByRoom.getOrDefault(room, new ArrayList<>())) {
            if (from.isBefore(other.getTo()) && to.isAfter(other.getFrom())) {
                throw new RoomTakenException(room, from, to);
            }
        }
        Booking booking = new Booking(room, guest, from, to);
        List<Booking> bookings = bookingsByRoom.get(room);
        if (bookings == null) {
            bookings = new ArrayList<>();
            bookingsByRoom.put(room, bookings);
        }
        bookings.add(booking);
        sender.send(guest, "Your room " + room + " is booked from " + from + " to " + to + ".");
        return booking;
    }

    public boolean cancel(Booking booking) {
        List<Booking> bookings = bookingsByRoom.get(booking.getRoom());
        if (bookings == null) {
            return false;
        }
        boolean removed = bookings.remove(booking);
        if (removed) {
            sender.send(booking.getGuest(), "Your booking of room " + booking.getRoom() + " is cancelled.");
        }
        return removed;
    }

    public List<Booking> bookingsOf(String guest) {
        List<Booking> found = new ArrayList<>();
        for (List<Booking> bookings : bookingsByRoom.values()) {
            for (Booking booking : bookings) {
                if (booking.getGuest().equals(guest)) {
                    found.add(booking);
                }
            }
        }
        return found;
    }

    public int nightsBooked(String room) {
        int nights = 0;
        for (Booking booking : bookingsByRoom.getOrDefault(room, new ArrayList<>())) {
            nights += booking.getFrom().until(booking.getTo()).getDays();
        }
        return nights;
    }
}

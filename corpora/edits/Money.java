package com.example.money;

public class Money {
    private long cents;
    private String currency;

    public Money(long cents, String currency) {
        this.cents = cents;
        this.currency = currency;
    }

    public long getCents() {
        return cents;
    }

    public void setCents(long cents) {
        this.cents = cents;
    }

    public String getCurrency() {
        return currency;
    }

    public void setCurrency(String currency) {
        this.currency = currency;
    }

    public Money plus(Money other) {
        return new Money(cents + other.cents, currency);
    }

    public Money minus(Money other) {
        return new Money(cents - other.cents, currency);
    }

    public Money times(int factor) {
        return new Money(cents * factor, currency);
    }

    public boolean isNegative() {
        return cents < 0;
    }

    @Override
    public String toString() {
        return String.format("%d.%02d %s", cents / 100, cents % 100, currency);
    }
}

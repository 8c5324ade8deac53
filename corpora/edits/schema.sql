-- Library lending, PostgreSQL

CREATE TABLE members (
    id          serial PRIMARY KEY,
    name        varchar(100) NOT NULL,
    email       varchar(100) NOT NULL,
    joined_on   date NOT NULL DEFAULT current_date
);

CREATE TABLE books (
    id          serial PRIMARY KEY,
    isbn        char(13) NOT NULL,
    title       varchar(200) NOT NULL,
    author      varchar(100) NOT NULL,
    copies      integer NOT NULL DEFAULT 1
);

CREATE TABLE loans (
    id          serial PRIMARY KEY,
    member_id   integer NOT NULL REFERENCES members (id),
    book_id     integer NOT NULL REFERENCES books (id),
    lent_on     date NOT NULL DEFAULT current_date,
    due_on      date NOT NULL,
    returned_on date
);

CREATE INDEX loans_member ON loans (member_id);
CREATE INDEX loans_book ON loans (book_id);

CREATE VIEW overdue AS
SELECT m.name, m.email, b.title, l.due_on
FROM loans l
JOIN members m ON m.id = l.member_id
JOIN books b ON b.id = l.book_id
WHERE l.returned_on IS NULL
  AND l.due_on < current_date;

CREATE VIEW available AS
SELECT b.id, b.title, b.copies - count(l.id) AS free
FROM books b
LEFT JOIN loans l ON l.book_id = b.id
GROUP BY b.id, b.title, b.copies;

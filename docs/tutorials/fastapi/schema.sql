-- The tables of the application; PostgreSQL owns them.
CREATE TABLE posts (
    author text COLLATE "C",
    written timestamptz DEFAULT clock_timestamp(),
    body text NOT NULL,
    PRIMARY KEY (author, written)
);
CREATE TABLE follows (reader text COLLATE "C", author text COLLATE "C", PRIMARY KEY (reader, author));
CREATE TABLE mutes (reader text COLLATE "C", author text COLLATE "C", PRIMARY KEY (reader, author));
CREATE TABLE likes (
    author text COLLATE "C",
    written timestamptz,
    reader text COLLATE "C",
    PRIMARY KEY (author, written, reader),
    FOREIGN KEY (author, written) REFERENCES posts
);

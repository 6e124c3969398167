-- Tables as Mastodon has them, as far as feeds go. What is not Mastodon's: accounts follow themselves; owners are in
-- their lists (is_owner); the last four columns of statuses, which a trigger fills; servers are numbers, 0 this one.
CREATE TABLE accounts (id bigint PRIMARY KEY, domain_id int NOT NULL);
CREATE TABLE follows (account_id bigint, target_account_id bigint, show_reblogs boolean NOT NULL DEFAULT true,
    PRIMARY KEY (account_id, target_account_id));
CREATE INDEX ON follows (target_account_id);
CREATE TABLE mutes (account_id bigint, target_account_id bigint, PRIMARY KEY (account_id, target_account_id));
CREATE TABLE blocks (account_id bigint, target_account_id bigint, PRIMARY KEY (account_id, target_account_id));
CREATE INDEX ON blocks (target_account_id);
CREATE TABLE account_domain_blocks (account_id bigint, domain_id int, PRIMARY KEY (account_id, domain_id));
CREATE TABLE lists (id bigint PRIMARY KEY, account_id bigint NOT NULL, replies_policy text NOT NULL);
CREATE INDEX ON lists (account_id);
CREATE TABLE list_accounts (owner_id bigint, list_id bigint, account_id bigint, is_owner boolean NOT NULL DEFAULT false,
    PRIMARY KEY (owner_id, list_id, account_id));
CREATE TABLE statuses (id bigint PRIMARY KEY, account_id bigint NOT NULL, text text NOT NULL,
    in_reply_to_account_id bigint, reblog_of_id bigint, deleted_at bigint,
    to_id bigint NOT NULL, of_id bigint NOT NULL, from_id int NOT NULL, kind text NOT NULL);
CREATE INDEX ON statuses (account_id, id);
CREATE INDEX ON statuses (reblog_of_id);
CREATE FUNCTION fill_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.to_id := coalesce(NEW.in_reply_to_account_id, NEW.account_id);
    NEW.kind := CASE WHEN NEW.reblog_of_id IS NULL THEN 'p' ELSE 'b' END;
    SELECT a.id, a.domain_id INTO NEW.of_id, NEW.from_id
        FROM statuses s JOIN accounts a ON a.id = s.account_id WHERE s.id = NEW.reblog_of_id;
    NEW.of_id := coalesce(NEW.of_id, NEW.account_id);
    NEW.from_id := coalesce(NEW.from_id, 0);
    RETURN NEW;
END $$;
CREATE TRIGGER fill BEFORE INSERT ON statuses FOR EACH ROW EXECUTE FUNCTION fill_status();

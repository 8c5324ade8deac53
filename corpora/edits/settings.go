package settings

import (
	"os"
	"strconv"
	"time"
)

type Settings struct {
	Address      string
	DatabaseURL  string
	ReadTimeout  time.Duration
	WriteTimeout time.Duration
	MaxUploads   int
	Debug        bool
}

func FromEnv() (Settings, error) {
	var s Settings
	s.Address = os.Getenv("APP_ADDRESS")
	if s.Address == "" {
		s.Address = ":8080"
	}
	s.DatabaseURL = os.Getenv("APP_DATABASE_URL")
	if s.DatabaseURL == "" {
		s.DatabaseURL = "postgres://localhost/app"
	}
	readTimeout, err := time.ParseDuration(os.Getenv("APP_READ_TIMEOUT"))
	if err != nil {
		return s, err
	}
	s.ReadTimeout = readTimeout
	writeTimeout, err := time.ParseDuration(os.Getenv("APP_WRITE_TIMEOUT"))
	if err != nil {
		return s, err
	}
	s.WriteTimeout = writeTimeout
	maxUploads, err := strconv.Atoi(os.Getenv("APP_MAX_UPLOADS"))
	if err != nil {
		return s, err
	}
	s.MaxUploads = maxUploads
	s.Debug = os.Getenv("APP_DEBUG") == "1"
	return s, nil
}

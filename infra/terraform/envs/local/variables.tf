variable "endpoint" {
  description = "URL of the emulated AWS."
  type        = string
}

variable "access_key" {
  description = "Access key of its root user."
  type        = string
}

variable "secret_key" {
  description = "Secret key of its root user."
  type        = string
  sensitive   = true
}

variable "packages" {
  description = "Folder with the zips of `make package`."
  type        = string
}

variable "tarantool_address" {
  description = "host:port of a Tarantool on this machine."
  type        = string
}

variable "secrets" {
  description = "server.token, tarantool.password."
  type        = map(string)
  sensitive   = true
}

variable "name" {
  description = "What all names begin with."
  type        = string
  default     = "minitoolstream-local"
}

variable "region" {
  description = "Region that requests are signed for."
  type        = string
  default     = "us-east-1"
}

variable "settings" {
  description = "Further settings of all functions."
  type        = map(string)
  default     = {}
}

variable "visibility_seconds" {
  description = "How long an event of the bucket is not given again."
  type        = number
  default     = 30
}

variable "tries" {
  description = "How often an event of the bucket is tried."
  type        = number
  default     = 5
}

variable "cors_origins" {
  description = "Web origins whose pages may call the API and use presigned URLs."
  type        = list(string)
  default     = []
}
